"""The figures of a study, drawn from its finished cells."""

from fedquilt.studies.figures.drawing import draw_figures, study_figures

__all__ = ["draw_figures", "study_figures"]
