// A vCenter to test against: govmomi's simulator with a main program of our own.
module tools

go 1.26.0

require github.com/vmware/govmomi v0.55.1

require github.com/google/uuid v1.6.0 // indirect
