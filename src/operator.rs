//! Composition root: builds clients, drivers and controllers and joins them; owns the clock.
