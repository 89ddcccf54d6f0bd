//! FACTS → BYTES (pure): the node plan, kubelet, containerd and kubeadm configuration, cloudbase-init user data, config drive.
