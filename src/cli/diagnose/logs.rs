//! `capw diagnose logs FILE...`

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use clap::Args;

use super::answer::Answer;
use crate::diagnosis::{Source, Symptom, diagnose, logs};

/// The number of bytes that are read from the end of a file, where the current problem is.
const LIMIT: u64 = 64 << 20;

#[derive(Args, Debug)]
pub(super) struct Files {
    /// Log files, or what collect.ps1 wrote on a machine; `-` is standard input. Their names say what they are (kubelet.log, containerd.log, cloudbase-init.log, bootstrap.log, report.log, kube-proxy.log, setupact.log, System.csv …); say it yourself with KIND=FILE.
    #[arg(value_name = "[KIND=]FILE", required = true)]
    files: Vec<String>,
}

impl Files {
    pub(super) fn look(&self) -> Result<Answer, String> {
        let mut symptoms = Vec::new();
        for file in &self.files {
            let (kind, path) = named(file)?;
            read(kind, &path, &mut symptoms)?;
        }
        let subject = format!("{} lines of {} files", symptoms.len(), self.files.len());
        Ok(Answer { subject, findings: diagnose(&symptoms), not_looked_at: Vec::new() })
    }
}

/// Returns the kind and path of a file.
fn named(argument: &str) -> Result<(Source, PathBuf), String> {
    if let Some((kind, path)) = argument.split_once('=')
        && !PathBuf::from(argument).exists()
    {
        let named = serde_json::from_value(serde_json::Value::String(kind.to_owned())).ok().filter(|kind: &Source| kind.is_log());
        let kinds = "report, bootstrap, cloudbase-init, containerd, kubelet, kubeadm, kube-proxy, cni, windows or unknown";
        return Ok((named.ok_or_else(|| format!("{argument}: {kind:?} is no kind of log: expected {kinds}"))?, path.into()));
    }
    let path = PathBuf::from(argument);
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok((logs::kind_of(&name).unwrap_or(Source::Unknown), path))
}

fn read(kind: Source, path: &PathBuf, symptoms: &mut Vec<Symptom>) -> Result<(), String> {
    let name = path.file_name().map_or_else(|| "-".into(), |name| name.to_string_lossy().into_owned());
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    let input: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(std::io::stdin())
    } else {
        let mut file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(length.saturating_sub(LIMIT))).map_err(failed)?;
        Box::new(file)
    };
    let mut bytes = Vec::new();
    input.take(LIMIT).read_to_end(&mut bytes).map_err(failed)?;
    // Windows tools write UTF-16 with a byte order mark.
    let text = match bytes.as_slice() {
        [0xff, 0xfe, rest @ ..] => {
            let units: Vec<u16> =
                rest.chunks_exact(2).map(|pair| u16::from_le_bytes([*pair.first().unwrap_or(&0), *pair.last().unwrap_or(&0)])).collect();
            String::from_utf16_lossy(&units)
        }
        other => String::from_utf8_lossy(other).into_owned(),
    };
    let mut part = (kind, name.clone());
    for (number, line) in BufReader::new(text.as_bytes()).lines().map_while(Result::ok).enumerate() {
        match header(&line) {
            Some(file) => part = (logs::kind_of(file).unwrap_or(kind), format!("{name}: {file}")),
            None => symptoms.extend(logs::symptom(part.0, &part.1, number + 1, &line)),
        }
    }
    Ok(())
}

/// Returns the file name in a header line, which collect.ps1 and `tail` write before the lines of each file.
fn header(line: &str) -> Option<&str> {
    let path = line.trim_end().strip_prefix("==> ")?.strip_suffix(" <==")?;
    path.rsplit(['\\', '/']).next()
}
