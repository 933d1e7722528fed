//! Named objects.
