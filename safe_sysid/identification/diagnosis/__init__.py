"""What the equations say when they contradict each other, or say too little."""
