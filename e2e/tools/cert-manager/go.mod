// The CustomResourceDefinitions of cert-manager: clusterctl asks for cert-manager, and on a test cluster that runs no
// pods its definitions are all there can be. Nothing of it is compiled.
module tools

go 1.26.0

require github.com/cert-manager/cert-manager v1.21.2
