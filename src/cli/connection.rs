//! The flags that select a cluster, as in kubectl.

use std::path::PathBuf;

use clap::Args;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::kube_api::cluster::Cluster;

/// Which cluster and which namespace, as kubectl has them.
#[derive(Args, Debug, Default)]
pub struct Connection {
    /// Namespace [default: that of the kubeconfig's context].
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Context of the kubeconfig [default: its current one].
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// The kubeconfig [default: that of KUBECONFIG, ~/.kube/config, or the service account of the pod].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl Connection {
    /// Connects to the cluster and calls the function with it and the selected namespace.
    pub fn ask<T>(&self, ask: impl AsyncFnOnce(Cluster, String) -> Result<T, String>) -> Result<T, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| format!("runtime: {e}"))?;
        runtime.block_on(async {
            let config = self.config().await?;
            let namespace = config.default_namespace.clone();
            ask(Cluster::new(kube::Client::try_from(config).map_err(|e| format!("kubeconfig: {e}"))?), namespace).await
        })
    }

    /// Returns the client's configuration, with the selected namespace as its default.
    async fn config(&self) -> Result<Config, String> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let mut config = match (&self.kubeconfig, &self.context) {
            (Some(path), _) => {
                let failed = |e| format!("--kubeconfig {}: {e}", path.display());
                Config::from_custom_kubeconfig(Kubeconfig::read_from(path).map_err(failed)?, &options).await.map_err(failed)?
            }
            (None, Some(context)) => Config::from_kubeconfig(&options).await.map_err(|e| format!("--context {context}: {e}"))?,
            (None, None) => Config::infer().await.map_err(|e| format!("kubeconfig: {e}"))?,
        };
        if let Some(namespace) = &self.namespace {
            config.default_namespace.clone_from(namespace);
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
current-context: first
clusters:
- {name: one, cluster: {server: 'http://one.example'}}
- {name: two, cluster: {server: 'http://two.example'}}
users:
- {name: user, user: {}}
contexts:
- {name: first, context: {cluster: one, user: user, namespace: a}}
- {name: second, context: {cluster: two, user: user, namespace: b}}
";

    #[tokio::test]
    async fn the_flags_of_kubectl_choose_cluster_and_namespace() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, KUBECONFIG).unwrap();
        let of = async |context: Option<&str>, namespace: Option<&str>| {
            let connection =
                Connection { namespace: namespace.map(str::to_owned), context: context.map(str::to_owned), kubeconfig: Some(path.clone()) };
            connection.config().await.map(|config| (config.cluster_url.to_string(), config.default_namespace))
        };
        assert_eq!(of(None, None).await.unwrap(), ("http://one.example/".to_owned(), "a".to_owned()));
        assert_eq!(of(Some("second"), None).await.unwrap(), ("http://two.example/".to_owned(), "b".to_owned()));
        assert_eq!(of(Some("second"), Some("c")).await.unwrap().1, "c");
        let error = of(Some("third"), None).await.unwrap_err();
        assert!(error.contains("kubeconfig") && error.contains("third"), "{error}");
    }
}
