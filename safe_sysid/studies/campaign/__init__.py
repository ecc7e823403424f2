"""Campaigns: thousands of adversarial trials that look for a truth outside what is published."""
