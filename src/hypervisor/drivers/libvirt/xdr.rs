//! XDR (RFC 4506), the encoding of libvirt's messages: the part that the requests of this driver need.

use uuid::Uuid;

/// The error for a malformed message: too short, too long, or not of the expected form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// The most elements of a list in an answer.
const LIST: u32 = 65_536;

#[derive(Default)]
pub struct Encoder(Vec<u8>);

impl Encoder {
    pub fn bytes(self) -> Vec<u8> {
        self.0
    }

    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn text(mut self, value: &str) -> Self {
        self = self.u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.0.extend(value.as_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub fn optional_text(self, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.u32(1).text(value),
            None => self.u32(0),
        }
    }

    pub fn uuid(mut self, value: Uuid) -> Self {
        self.0.extend(value.as_bytes());
        self
    }
}

pub struct Decoder<'a>(pub &'a [u8]);

impl<'a> Decoder<'a> {
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.take(4)?.try_into().map(u32::from_be_bytes).map_err(|_| Malformed("a number"))
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.take(8)?.try_into().map(u64::from_be_bytes).map_err(|_| Malformed("a number"))
    }

    pub fn text(&mut self) -> Result<String, Malformed> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| Malformed("a text that is not UTF-8"))
    }

    /// Decodes a text for messages: libvirt passes on the output of other programs, in any encoding.
    pub fn message(&mut self) -> Result<Option<String>, Malformed> {
        if self.u32()? == 0 { Ok(None) } else { self.bytes().map(|text| Some(String::from_utf8_lossy(text).into_owned())) }
    }

    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()? as usize;
        let bytes = self.take(length)?;
        self.take(length.next_multiple_of(4) - length)?;
        Ok(bytes)
    }

    pub fn optional_text(&mut self) -> Result<Option<String>, Malformed> {
        if self.u32()? == 0 { Ok(None) } else { self.text().map(Some) }
    }

    pub fn uuid(&mut self) -> Result<Uuid, Malformed> {
        Uuid::from_slice(self.take(16)?).map_err(|_| Malformed("a UUID"))
    }

    pub fn list<T>(&mut self, mut element: impl FnMut(&mut Self) -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
        let length = self.u32()?;
        if length > LIST {
            return Err(Malformed("a list that is too long"));
        }
        (0..length).map(|_| element(self)).collect()
    }

    /// Takes a fixed number of bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed("a message that ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(text in ".{0,40}", maybe in proptest::option::of("[a-z]{0,9}"), number in any::<u64>(), id in any::<u128>()) {
            let bytes = Encoder::default().text(&text).optional_text(maybe.as_deref()).u64(number).uuid(Uuid::from_u128(id)).u32(7).bytes();
            prop_assert_eq!(bytes.len() % 4, 0);
            let mut decoder = Decoder(&bytes);
            prop_assert_eq!(decoder.text().unwrap(), text);
            prop_assert_eq!(decoder.optional_text().unwrap(), maybe);
            prop_assert_eq!((decoder.u64().unwrap(), decoder.uuid().unwrap(), decoder.u32().unwrap()), (number, Uuid::from_u128(id), 7));
            prop_assert!(decoder.0.is_empty() && decoder.u32().is_err());
        }

        #[test]
        fn no_answer_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Decoder(&bytes).list(|d| Ok((d.text()?, d.optional_text()?, d.uuid()?)));
        }
    }
}
