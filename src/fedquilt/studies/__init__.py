"""Studies: many runs that make up a paper's table or figure, with the published numbers beside ours.

Each study is a YAML file in `catalogue/`. In the order of the work:

    spec, catalogue_files   read a study
    cells, plan             list its runs, the cells
    run_cell, workers, runner, store   run the cells and store the results
    selection, summary, gather         choose settings by validation and gather the results
    tables, sentences, formats, pages, report, figures/   show them
"""
