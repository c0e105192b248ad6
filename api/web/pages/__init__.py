"""The pages, each as a function of the registry."""
