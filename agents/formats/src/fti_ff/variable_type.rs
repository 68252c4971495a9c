//! The types of the elements of variables.

/// The type of a variable's elements: a name for messages, and the size of an element. Files contain bytes only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableType {
    name: String,
    bytes: usize,
}

macro_rules! basic_types {
    ($($(#[$doc:meta])* $function:ident, $name:literal, $bytes:expr;)*) => {
        impl VariableType {
            $($(#[$doc])* pub fn $function() -> Self { VariableType { name: $name.to_owned(), bytes: $bytes } })*

            /// The basic types in the order of FTI's numbers.
            pub const BASIC: &[fn() -> Self] = &[$(Self::$function),*];

            /// The basic type of this name, for command lines and messages.
            pub fn of_name(name: &str) -> Option<Self> {
                Self::BASIC.iter().map(|basic| basic()).find(|basic| basic.name == name)
            }
        }
    };
}

basic_types! {
    /// C `char` (`FTI_CHAR`), and bytes of any meaning.
    char, "char", 1;
    /// C `short` (`FTI_SHRT`).
    short, "short", size_of::<std::ffi::c_short>();
    /// C `int` (`FTI_INTG`).
    int, "int", size_of::<std::ffi::c_int>();
    /// C `long` (`FTI_LONG`).
    long, "long", size_of::<std::ffi::c_long>();
    /// C `unsigned char` (`FTI_UCHR`).
    unsigned_char, "unsigned-char", 1;
    /// C `unsigned short` (`FTI_USHT`).
    unsigned_short, "unsigned-short", size_of::<std::ffi::c_ushort>();
    /// C `unsigned int` (`FTI_UINT`).
    unsigned_int, "unsigned-int", size_of::<std::ffi::c_uint>();
    /// C `unsigned long` (`FTI_ULNG`).
    unsigned_long, "unsigned-long", size_of::<std::ffi::c_ulong>();
    /// C `float` (`FTI_SFLT`).
    float, "float", size_of::<f32>();
    /// C `double` (`FTI_DBLE`).
    double, "double", size_of::<f64>();
    /// C `long double` (`FTI_LDBE`): 16 bytes on the platforms that Holdfast supports.
    long_double, "long-double", 16;
}

impl VariableType {
    /// A type of the program (`FTI_InitType`), such as a structure: only its size matters.
    pub fn user(name: impl Into<String>, bytes: usize) -> Self {
        VariableType { name: name.into(), bytes }
    }

    /// Its name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of an element.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
