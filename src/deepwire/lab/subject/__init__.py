"""What is analysed: a model, its run, the text it reads, and the scores of its translations."""
