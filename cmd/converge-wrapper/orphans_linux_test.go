package main

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// adoptOrphans makes the wrapper like the first process of a container: the kernel reparents orphans to it (PR_SET_CHILD_SUBREAPER).
func adoptOrphans() { _, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, 36, 1, 0) }

// As the first process of a container the wrapper reaps orphans: none stays a zombie while the command runs.
func TestOrphansAreReaped(t *testing.T) {
	doc, code := runWrapper(t, "exec", "--timeout", "20s", "--", "sh", "-c",
		`orphan=$(sh -c 'sh -c "exit 0" >/dev/null & echo $!'); while [ -e /proc/$orphan ]; do :; done; echo reaped`)
	require.Zero(t, code, doc.Error)
	require.Equal(t, "reaped\n", string(doc.Stdout.Data))
}
