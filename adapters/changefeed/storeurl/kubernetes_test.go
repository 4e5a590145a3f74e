package storeurl_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storeurl"
)

// TestOpen_UsesKubernetesContextOfAddress checks that a store uses the API server and the token of the context
// that the address names, and that a program outside a cluster does not wait for an API server.
func TestOpen_UsesKubernetesContextOfAddress(t *testing.T) {
	requests := make(chan *http.Request, 10)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: other,
		clusters: [{name: c, cluster: {server: "%s", insecure-skip-tls-verify: true}}, {name: other, cluster: {server: "http://127.0.0.1:1"}}],
		users: [{name: u, user: {token: secret}}],
		contexts: [{name: mine, context: {cluster: c, user: u}}, {name: other, context: {cluster: other, user: u}}]}`, server.URL), 0o600))
	opener, err := storeurl.Open(t.Context(), storeurl.Config{URL: "kubernetes://team?context=mine&kubeconfig=" + file, Election: "report"})
	require.NoError(t, err)
	defer opener.Close()
	store, err := opener.NewStore()
	require.NoError(t, err)
	defer store.Close()
	_, err = store.Read(t.Context())
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	require.ErrorIs(t, err, leaderelection.ErrPermission)
	require.NotContains(t, err.Error(), "secret")
	r := <-requests
	require.Equal(t, "/apis/coordination.k8s.io/v1/namespaces/team/leases/report", r.URL.Path)
	require.Equal(t, "Bearer secret", r.Header.Get("Authorization"))

	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err = storeurl.Open(t.Context(), storeurl.Config{URL: "kubernetes://team", Election: "report"})
	require.ErrorIs(t, err, leaderelection.ErrInvalid)
	require.ErrorContains(t, err, "kubeconfig")
}

// TestLogDrivers_LogsKubernetesMessagesAtDebug checks that, after LogDrivers, client-go prints nothing on standard error,
// and that its messages are logged with level Debug only.
func TestLogDrivers_LogsKubernetesMessagesAtDebug(t *testing.T) {
	var text bytes.Buffer
	t.Cleanup(func() { storeurl.LogDrivers(slog.New(slog.DiscardHandler)) })
	storeurl.LogDrivers(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})))
	klog.ErrorS(errors.New("reset"), "reading failed", "server", 1)
	require.Contains(t, text.String(), `level=DEBUG msg="kubernetes: reading failed" err=reset server=1`)
	text.Reset()
	storeurl.LogDrivers(slog.New(slog.NewTextHandler(&text, nil)))
	klog.ErrorS(errors.New("reset"), "reading failed")
	require.Empty(t, text.String())
}
