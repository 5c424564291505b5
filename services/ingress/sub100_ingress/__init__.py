"""Ingress: OpenAI HTTP in, jobs out, tokens in, text out. Publishes every job and alone detokenises."""
