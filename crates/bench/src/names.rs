//! The names that plans and results have for the variants of a type, in one place for both ways.

/// Gives a type `ALL` and `NAMES`, in one order, and the two ways between them.
macro_rules! names {
    ($type:ident { $($variant:ident = $name:literal),* $(,)? }) => {
        impl $type {
            /// All of them.
            pub const ALL: [$type; [$($name),*].len()] = [$($type::$variant),*];
            /// Their names in plans and results.
            pub const NAMES: [&'static str; [$($name),*].len()] = [$($name),*];

            /// The name in plans and results.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)*
                }
            }

            /// What has this name.
            ///
            /// # Panics
            /// If nothing has it: a plan has checked it.
            pub(crate) fn named(name: &str) -> $type {
                match name {
                    $($name => $type::$variant,)*
                    _ => panic!("nothing is called {name}"),
                }
            }
        }
    };
}
pub(crate) use names;
