module kubelet-surface

go 1.26
