"""Which versions fit together: the search, what it is asked and answers, and what is told of a conflict."""
