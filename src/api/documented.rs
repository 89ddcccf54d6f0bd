//! Enums whose documentation is also data: programs print it, and the tables in `docs/` are generated from it.

/// Declares an enum in which each variant has a doc comment and an entry with further data.
///
/// `ALL` lists the variants in the order of declaration, `as_str` is the name of the variant, `meaning` its doc comment in one line.
macro_rules! documented_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident: $entry:ty {
            $($(#[doc = $line:literal])+ $variant:ident => $value:expr,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[doc = $line])+ $variant,)+
        }

        impl $name {
            /// Every variant, in the order of declaration.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name of the variant.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                }
            }

            /// The doc comment, in one line of Markdown.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($line),+).trim_ascii(),)+
                }
            }

            /// The further data of the variant.
            pub(super) const fn entry(self) -> $entry {
                match self {
                    $(Self::$variant => $value,)+
                }
            }
        }
    };
}

/// Makes the enum comparable with the text that the API server stores.
macro_rules! compare_with_text {
    ($name:ty) => {
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl PartialEq<$name> for String {
            fn eq(&self, other: &$name) -> bool {
                self == other.as_str()
            }
        }
    };
}

pub(crate) use {compare_with_text, documented_enum};
