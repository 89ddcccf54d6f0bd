//! The registry of a Wine guest: `reg query` reads it, and `reg import` of a file writes it, so that no value becomes an argument.

use std::fs;

use super::machine::Machine;
use crate::bootstrap::plan::RegistryData;

/// The type and data of a value as `reg` shows them: `REG_DWORD`, `0x10`; several texts are joined by `\0`.
#[derive(Debug, PartialEq, Eq)]
pub struct Value {
    pub kind: String,
    pub data: String,
}

impl Value {
    /// Converts an item's data to the form of `reg`.
    pub fn of(data: &RegistryData) -> Self {
        let (kind, data) = match data {
            RegistryData::String(text) => ("REG_SZ", text.clone()),
            RegistryData::ExpandString(text) => ("REG_EXPAND_SZ", text.clone()),
            RegistryData::Dword(number) => ("REG_DWORD", format!("0x{number:x}")),
            RegistryData::MultiString(texts) => ("REG_MULTI_SZ", texts.join("\\0")),
        };
        Self { kind: kind.into(), data }
    }

    /// The value's text as a check compares it: numbers in decimal, several texts joined by blanks.
    pub fn text(&self) -> String {
        match self.kind.as_str() {
            "REG_DWORD" => {
                u32::from_str_radix(self.data.trim_start_matches("0x"), 16).map_or_else(|_| self.data.clone(), |number| number.to_string())
            }
            "REG_MULTI_SZ" => self.data.replace("\\0", " ").trim_end().to_owned(),
            _ => self.data.clone(),
        }
    }
}

/// Reads a value; `None` if the key or name does not exist. An empty name is the key's default value.
pub async fn read(machine: &Machine, key: &str, name: &str) -> Result<Option<Value>, String> {
    let key = native(key);
    let (argv, shown) =
        if name.is_empty() { (vec!["reg", "query", &key, "/ve"], "(Default)") } else { (vec!["reg", "query", &key, "/v", name], name) };
    let (status, text) = machine.tool(&argv).await.map_err(|error| format!("reg query: {error}"))?;
    Ok(status.success().then(|| parse(&text, shown)).flatten())
}

fn parse(text: &str, name: &str) -> Option<Value> {
    let wanted = name.to_ascii_lowercase();
    let line = text.lines().rev().map(str::trim_start).find(|line| line.to_ascii_lowercase().starts_with(&wanted))?;
    let (kind, data) = line.get(name.len()..)?.trim_start().split_once("    ")?;
    Some(Value { kind: kind.to_owned(), data: data.to_owned() })
}

/// Whether the key exists.
pub async fn has_key(machine: &Machine, key: &str) -> Result<bool, String> {
    let (status, _) = machine.tool(&["reg", "query", &native(key)]).await.map_err(|error| format!("reg query: {error}"))?;
    Ok(status.success())
}

/// Writes a value, and the keys above it.
pub async fn write(machine: &Machine, key: &str, name: &str, data: &RegistryData) -> Result<(), String> {
    import(machine, &document(key, name, data)).await
}

/// Imports a `.reg` file.
pub async fn import(machine: &Machine, document: &str) -> Result<(), String> {
    let file = machine.drive().join("windows/temp/import.reg");
    // The byte order mark declares UTF-16.
    let bytes: Vec<u8> = std::iter::once(0xfeff).chain(document.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    fs::write(&file, bytes).map_err(|error| format!("{}: {error}", file.display()))?;
    let imported = machine.tool(&["reg", "import", r"C:\windows\temp\import.reg"]).await;
    fs::remove_file(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    match imported {
        Ok((status, _)) if status.success() => Ok(()),
        Ok((_, text)) => Err(format!("reg import: {}", text.trim())),
        Err(error) => Err(format!("reg import: {error}")),
    }
}

pub const HEADER: &str = "Windows Registry Editor Version 5.00\r\n\r\n";

fn document(key: &str, name: &str, data: &RegistryData) -> String {
    let name = if name.is_empty() { "@".to_owned() } else { quoted(name) };
    let data = match data {
        RegistryData::String(text) => quoted(text),
        RegistryData::ExpandString(text) => format!("hex(2):{}", hexadecimal(&format!("{text}\0"))),
        RegistryData::Dword(number) => format!("dword:{number:08x}"),
        RegistryData::MultiString(texts) => {
            let all: String = texts.iter().map(|text| format!("{text}\0")).collect();
            format!("hex(7):{}", hexadecimal(&(all + "\0")))
        }
    };
    format!("{HEADER}[{}]\r\n{name}={data}\r\n", native(key).replacen("HKLM", "HKEY_LOCAL_MACHINE", 1))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The text as UTF-16 bytes, little-endian.
fn hexadecimal(text: &str) -> String {
    text.encode_utf16().flat_map(u16::to_le_bytes).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(",")
}

/// Converts PowerShell's `HKLM:\…` to the form of `reg`.
fn native(key: &str) -> String {
    key.replacen(":\\", "\\", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_files_of_the_registry_are() {
        let line = |name: &str, data| document(r"HKLM:\A\b", name, &data).lines().nth(3).unwrap().to_owned();
        assert!(document(r"HKLM:\A\b", "", &RegistryData::Dword(1)).contains("[HKEY_LOCAL_MACHINE\\A\\b]\r\n@=dword:00000001"));
        assert_eq!(line("n", RegistryData::String(r#"C:\"x""#.into())), r#""n"="C:\\\"x\"""#);
        assert_eq!(line("n", RegistryData::MultiString(vec!["a".into()])), r#""n"=hex(7):61,00,00,00,00,00"#);
        assert_eq!(line("n", RegistryData::ExpandString("%".into())), r#""n"=hex(2):25,00,00,00"#);
    }

    #[test]
    fn values_are_read_as_reg_shows_them() {
        let shown = "\nHKEY_LOCAL_MACHINE\\A\n    computername    REG_SZ    WIN-A B\n\n";
        assert_eq!(parse(shown, "ComputerName").unwrap().text(), "WIN-A B");
        assert_eq!(parse("    n    REG_DWORD    0x10\n", "n").unwrap().text(), "16");
        assert_eq!(parse("    n    REG_MULTI_SZ    a\\0b\n", "n").unwrap().text(), "a b");
        assert_eq!(parse("", "n"), None);
    }
}
