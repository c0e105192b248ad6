"""Uploads to a service: resumable files, holds against garbage collection, and quotas."""
