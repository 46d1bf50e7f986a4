"""The figures of a study, drawn from what is kept of its cells."""

from fedquilt.studies.figures.drawing import draw_figures, study_figures

__all__ = ["draw_figures", "study_figures"]
