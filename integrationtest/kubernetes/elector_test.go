package kubernetes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	coordination "k8s.io/api/coordination/v1"
)

// TestElector_ScriptsDoNotOverlap checks that a second instance of elector starts its script only after the script of
// the first instance has stopped. The election is on a Lease, and elector has only the rights of the Role in
// deploy/kubernetes.
func TestElector_ScriptsDoNotOverlap(t *testing.T) {
	s := startAPIServer(t)
	for _, o := range readObjects(t, manifests+"/base/rbac.yaml") {
		s.apply(t, o, false)
	}
	dir := t.TempDir()
	elector, kubeconfig, log := filepath.Join(dir, "elector"), filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "log")
	out, err := exec.Command("go", "build", "-o", elector, "../../cmd/elector").CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c,
		clusters: [{name: c, cluster: {server: "https://%s", insecure-skip-tls-verify: true}}],
		users: [{name: u, user: {token: %s}}], contexts: [{name: c, context: {cluster: c, user: u}}]}`, s.addr(), reportToken), 0o600))
	start := func(id string) *exec.Cmd {
		script := fmt.Sprintf(`trap 'echo %s stops >>%s; exit' TERM; echo %[1]s starts >>%[2]s; while :; do sleep 0.1; done`, id, log)
		cmd := exec.Command(elector, "run", "--backend=changefeed", "--store=kubernetes://default?kubeconfig="+kubeconfig,
			"--election=report", "--instance-id="+id, "--session-timeout=15s", "--", "/bin/sh", "-c", script)
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		return cmd
	}
	await := func(want ...string) {
		t.Helper()
		require.Eventually(t, func() bool {
			text, _ := os.ReadFile(log)
			return string(text) == strings.Join(want, "\n")+"\n"
		}, patience, tick)
	}
	first := start("pod-1")
	await("pod-1 starts")
	second := start("pod-2")
	var l coordination.Lease
	require.NoError(t, s.client(adminToken, coordination.SchemeGroupVersion).Get().Namespace("default").Resource("leases").
		Name("report").Do(t.Context()).Into(&l))
	require.Equal(t, "pod-1", *l.Spec.HolderIdentity)
	require.NoError(t, first.Process.Signal(syscall.SIGTERM))
	require.NoError(t, first.Wait())
	await("pod-1 starts", "pod-1 stops", "pod-2 starts")
	require.NoError(t, second.Process.Signal(syscall.SIGTERM))
	require.NoError(t, second.Wait())
}
