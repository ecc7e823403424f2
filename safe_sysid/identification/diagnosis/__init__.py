"""Diagnosis of equations that contradict each other or say too little."""
