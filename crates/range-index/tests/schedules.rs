//! Explored schedules.
