package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// readAncestors prints a line for each ancestor whose environment contains the password hunter2.
const readAncestors = `p=$PPID; n=0
while [ "$p" -gt 1 ]; do
	if tr '\0' '\n' < /proc/$p/environ 2> /dev/null | grep -q hunter2; then echo "read the password of $(cat /proc/$p/comm)"; fi
	p=$(awk '/^PPid/ {print $2}' /proc/$p/status); n=$((n + 1))
done
[ $n -gt 1 ] && echo checked`

// TestProtectMemory_HidesCredentials checks that a program that elector runs as an ordinary user cannot read
// elector's credentials from the environment of its ancestors in /proc.
func TestProtectMemory_HidesCredentials(t *testing.T) {
	h := newZooKeeperHarness(t)
	cmd := h.runCommand("a", readAncestors)
	cmd.Dir = "/"
	cmd.Env = append(cmd.Env, "ELECTOR_ZOOKEEPER_AUTH=me:hunter2")
	if os.Getuid() == 0 {
		require.NoError(t, os.Chmod(filepath.Dir(binary), 0o755))
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	p := startCommand(t, cmd)
	p.waitForOutput("checked")
	require.Equal(t, cmdline.OK, p.exitCode())
	require.Equal(t, "checked", p.output.Text())
}
