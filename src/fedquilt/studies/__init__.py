"""Studies: many runs that make up a paper's table or figure, with the published numbers beside ours.

Each study is a YAML file in `catalogue/`. In the order of the work:

    spec, catalogue_files   read a study
    cells, plan             list its runs, the cells
    run_cell, workers, runner, store   run the cells and store the results
    selection, summary, gather         choose settings by validation and gather the results
    tables, sentences, formats, pages, report, figures/   show them
    cell_times, cell_memory, time_left                    how long cells take, and how many fit beside each other
    share, exchange, merge                                several machines, and cells as one file
    scoreboard/                                           all studies on one page
"""
