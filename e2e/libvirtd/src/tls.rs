//! TLS to a daemon.

use std::fs;
use std::path::Path;

/// The settings with which a daemon listens for TLS on the loopback address. Certificates and key are in PEM.
pub struct Tls<'a> {
    pub port: u16,
    /// The authority that signs the certificates of both sides.
    pub authority: &'a str,
    /// The daemon's certificate.
    pub certificate: &'a str,
    pub key: &'a str,
    /// The common name of the client that is admitted.
    pub client: &'a str,
}

impl Tls<'_> {
    /// Writes the files into a directory. Returns the lines of libvirtd.conf that name them.
    pub fn configure(&self, directory: &Path) -> String {
        let files = [("ca_file", "ca.pem", self.authority), ("cert_file", "server.pem", self.certificate), ("key_file", "server.key", self.key)];
        let named = files.map(|(setting, name, text)| {
            let file = directory.join(name);
            fs::write(&file, text).unwrap();
            format!("{setting} = \"{}\"\n", file.display())
        });
        let (port, client) = (self.port, self.client);
        format!("listen_tls = 1\nlisten_addr = \"127.0.0.1\"\ntls_port = \"{port}\"\n{}tls_allowed_dn_list = [\"CN={client}\"]\n", named.concat())
    }
}
