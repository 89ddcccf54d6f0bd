#ps1_sysnative
# Unpacks the archive below and starts the runner in it.
Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'
$archive = @'
@ARCHIVE@
'@
exit 1
