//! Access control: the daemon queries the rights of a user from polkit, which is on a separate bus.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Daemon, are_installed, until};

/// The user to whom polkit's rules apply: root may do everything.
pub const USER: &str = "nobody";
const ACTIONS: &str = "org.libvirt.api.";
/// An action that is never refused: when it is allowed, polkit has read the rules.
const NEVER_REFUSED: &str = "domain.reset";

/// The address where programs expect the system bus, and polkit's own file that describes how to start it.
const BUS: &str = "<busconfig><type>session</type><listen>unix:path=/run/dbus/system_bus_socket</listen><auth>EXTERNAL</auth>\
    <servicedir>/usr/share/dbus-1/system-services</servicedir>\
    <policy context='default'><allow user='*'/><allow own='*'/><allow send_destination='*'/><allow receive_sender='*'/></policy></busconfig>";

/// Settings with which any user may connect, and libvirt checks each request with polkit.
const CONFIGURATION: &str = "auth_unix_rw = \"none\"\nunix_sock_rw_perms = \"0777\"\naccess_drivers = [\"polkit\"]\n";

impl Daemon {
    /// Starts a daemon in system mode, with access control. `None`, with the reason printed, without root or if the programs are missing.
    pub fn start_system_with_polkit() -> Option<Self> {
        if !are_installed(&["dbus-daemon", "pkcheck", "setpriv"]) {
            return None;
        }
        Self::start_system_with(CONFIGURATION, |daemon| {
            let file = daemon.path("bus.conf");
            fs::write(&file, BUS).unwrap();
            daemon.run("mkdir", &["-p", "/run/dbus", "/run/systemd/seats", "/run/systemd/sessions", "/run/systemd/users", "/run/systemd/machines"]);
            daemon.run("dbus-daemon", &["--fork", "--config-file", file.to_str().unwrap()]);
        })
    }

    /// Gives polkit a rule that lets [`USER`] do everything.
    pub fn allow(&self, rule: &str) {
        self.write_rule("50-capw.rules", rule);
        until("polkit has read its rules", || self.may(NEVER_REFUSED));
    }

    /// Refuses the user this one action, e.g. `storage-vol.create`, whatever other rules allow.
    pub fn refuse(&self, action: &str) {
        self.refuse_all(&[action]);
    }

    /// Refuses the user exactly these actions.
    pub fn refuse_all(&self, actions: &[&str]) {
        let refused: Vec<String> = actions.iter().map(|action| format!("'{ACTIONS}{action}'")).collect();
        let rule = format!("polkit.addRule(function(action) {{ if ([{}].indexOf(action.id) >= 0) return polkit.Result.NO; }});", refused.join(", "));
        self.write_rule("10-refused.rules", &rule);
        until("polkit has read its rules", || !actions.iter().any(|action| self.may(action)) && self.may(NEVER_REFUSED));
    }

    fn write_rule(&self, name: &str, rule: &str) {
        let new = self.path("new.rules");
        fs::write(&new, rule).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o644)).unwrap();
        fs::rename(new, self.path("etc/polkit-1/rules.d").join(name)).unwrap();
    }

    /// Whether polkit allows the user an action, by the rules that it has read.
    fn may(&self, action: &str) -> bool {
        let check = format!("exec pkcheck --process $$ --action-id {ACTIONS}{action}");
        self.as_user("sh").args(["-c", &check]).stderr(Stdio::null()).stdout(Stdio::null()).status().unwrap().success()
    }

    /// A program that the user runs in the daemon's namespaces.
    pub fn as_user(&self, program: impl AsRef<Path>) -> Command {
        let mut command = self.command("setpriv");
        command.args(["--reuid", USER, "--regid", "nogroup", "--clear-groups", "--"]).arg(program.as_ref());
        command
    }
}
