//! What the user adds: files.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{CONTRACT_DOCS, Procedure, item, why};
use crate::api::bootstrap_config::{Encoding, File};
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::plan::Access;

/// `spec.files`. What comes from a Secret travels with the other secrets, whose copies the last item removes.
pub(super) fn files(all: &mut Procedure, facts: &BootstrapFacts) -> Result<(), RenderError> {
    for (number, file) in facts.spec.files.iter().enumerate() {
        let directory = if file.content_from.is_some() { "secret" } else { "files" };
        let bytes = content(facts, number, file)?;
        let kind = all.file(&format!("{directory}/user-{number:02}"), &file.path, Access::Admins, bytes);
        all.add(item(
            &format!("file-{number:02}"),
            14,
            60,
            kind,
            why("You asked for it in spec.files.", CONTRACT_DOCS, "Check that the drive of the path exists and has space."),
        ));
    }
    Ok(())
}

fn content(facts: &BootstrapFacts, number: usize, file: &File) -> Result<Vec<u8>, RenderError> {
    let field = format!("spec.files[{number}]");
    match (&file.content, &file.content_from) {
        (Some(text), None) => match file.encoding {
            None => Ok(text.clone().into_bytes()),
            Some(Encoding::Base64) => {
                let plain: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
                let remedy = |e| RenderError::invalid(format!("{field}.content"), "(not shown)", format!("it is not base64: {e}"));
                STANDARD.decode(plain).map_err(remedy)
            }
        },
        (None, Some(from)) => Ok(facts.secrets.bytes(&format!("{field}.contentFrom.secretKeyRef"), &from.secret_key_ref)?.to_vec()),
        _ => Err(RenderError::invalid(field, &file.path, "give exactly one of content and contentFrom")),
    }
}
