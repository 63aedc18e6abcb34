"""The pages: each a function of the store and the View to a Page. They ask through questions.py and nothing else."""
