//! Numbers, with suffixes for their type (`l`, `d`, since version 7 also `u`, `s`, `y`, `n`) and size (`kb` to `pb`).

use super::characters::{ends_number, is_dash};
use super::scanner::Scanner;
use super::token::{Kind, Token};
use super::{Dialect, Parsed};

/// A number, and whether its type can hold it.
pub(super) struct Number {
    fits: bool,
}

impl Scanner {
    /// Reads a number, or a word that begins like one.
    pub fn number(&mut self, first: char) -> Parsed<Token> {
        let Some(number) = self.read_number(first) else {
            self.at = self.start;
            return self.word(String::new());
        };
        if number.fits {
            return Ok(self.token(Kind::Number));
        }
        if self.in_expression() {
            return self.fault(self.start, "a number that its type cannot hold");
        }
        self.at = self.start;
        self.word(String::new())
    }

    pub fn read_number(&mut self, mut first: char) -> Option<Number> {
        let mut digits = String::new();
        if first == '+' || is_dash(first) {
            digits.push(if first == '+' { '+' } else { '-' });
            first = self.take()?;
        }
        let mut real = false;
        let mut radix = 10;
        if first == '0' && self.sees(|c| matches!(c, 'x' | 'X' | 'b' | 'B')) {
            radix = if matches!(self.take()?, 'x' | 'X') { 16 } else { 2 };
            let rest = self.take_while(|c| c.is_digit(radix));
            if (radix == 2 && (rest.is_empty() && digits.is_empty())) || (radix == 2 && self.dialect == Dialect::Windows) {
                return None;
            }
            digits += &rest;
        } else {
            digits.push(first);
            let pointed = first == '.';
            digits += &self.take_while(|c| c.is_ascii_digit());
            let range = self.text.get(self.at + 1).is_some_and(|glyph| glyph.c == '.');
            real = pointed;
            if !pointed && self.sees(|c| c == '.') && !range {
                self.at += 1;
                real = true;
                digits.push('.');
                digits += &self.take_while(|c| c.is_ascii_digit());
            }
            if self.sees(|c| c == 'e' || c == 'E') {
                self.at += 1;
                real = true;
                digits.push('e');
                if let Some(sign) = self.peek().filter(|c| *c == '+' || is_dash(*c)) {
                    self.at += 1;
                    digits.push(if sign == '+' { '+' } else { '-' });
                }
                let exponent = self.take_while(|c| c.is_ascii_digit());
                if exponent.is_empty() {
                    return None;
                }
                digits += &exponent;
            }
        }
        let suffix = self.type_suffix()?;
        let multiplier = self.multiplier()?;
        if !self.word_ends() {
            let ternary = self.ternary;
            let ends = self.in_expression() && self.sees(|c| ends_number(c) || (ternary && matches!(c, '?' | ':')));
            if !ends {
                return None;
            }
        }
        Some(Number { fits: fits(&digits, radix, real, &suffix, multiplier) })
    }

    fn type_suffix(&mut self) -> Option<String> {
        let known = if self.dialect == Dialect::Windows { "ld" } else { "usldyn" };
        let is_suffix = |c: char| "usldyn".contains(c.to_ascii_lowercase());
        let suffix = self.take_while(is_suffix).to_lowercase();
        let good = match suffix.len() {
            0 => true,
            1 => known.contains(&suffix),
            _ => known.contains('u') && matches!(suffix.as_str(), "ul" | "us" | "uy"),
        };
        good.then_some(suffix)
    }

    fn multiplier(&mut self) -> Option<f64> {
        let Some(power) = self.peek().and_then(|c| "kmgtp".find(c.to_ascii_lowercase())) else { return Some(1.0) };
        self.at += 1;
        (self.accept('b') || self.accept('B')).then(|| 1024_f64.powi(i32::try_from(power).unwrap_or(0) + 1))
    }
}

fn fits(digits: &str, radix: u32, real: bool, suffix: &str, multiplier: f64) -> bool {
    let (sign, plain) = match digits.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, digits.strip_prefix('+').unwrap_or(digits)),
    };
    let value = match radix {
        10 => plain.parse().unwrap_or(f64::NAN),
        _ => plain.chars().filter_map(|c| c.to_digit(radix)).fold(0.0, |sum, digit| sum * f64::from(radix) + f64::from(digit)),
    };
    let value: f64 = sign * value * multiplier;
    // Hexadecimal and binary numbers are bit patterns that include the sign bit.
    let pattern = radix != 10;
    let within = |bits: i32, signed: bool| {
        let (low, high) = match (signed, pattern) {
            (true, false) => (-(2_f64.powi(bits - 1)), 2_f64.powi(bits - 1)),
            _ => (if signed { -(2_f64.powi(bits - 1)) } else { 0.0 }, 2_f64.powi(bits)),
        };
        value >= low && value < high
    };
    match suffix {
        "" => !real || value.is_finite(),
        "d" => value.abs() < 7.922_816_251_426_434e28,
        "l" => within(64, true),
        "s" => within(16, true),
        "y" => within(8, true),
        "u" | "ul" => within(64, false),
        "us" => within(16, false),
        "uy" => within(8, false),
        _ => true,
    }
}
