"""What tests start and stop: real servers, Spark sessions and driver processes; nothing here is a mock."""
