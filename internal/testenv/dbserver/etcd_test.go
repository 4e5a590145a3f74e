package dbserver_test

import (
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// TestEtcdCluster_KeepsDataAndAddressAcrossRestart checks that a server of the cluster has the same data and the
// same address after Kill and Restart, and that etcd grants leases with a TTL of one second.
func TestEtcdCluster_KeepsDataAndAddressAcrossRestart(t *testing.T) {
	c := dbserver.StartEtcd(t, dbserver.EtcdConfig{})
	key := map[string]any{"key": []byte("a"), "value": []byte("b")}
	var put struct {
		Header struct{ Revision string }
	}
	require.NoError(t, c.Call(0, "kv/put", key, &put))
	c.Kill(0)
	c.Restart(0)
	delete(key, "value")
	var got struct {
		Kvs []struct {
			Created string `json:"create_revision"`
		}
	}
	require.NoError(t, c.Call(0, "kv/range", key, &got))
	require.Len(t, got.Kvs, 1)
	require.Equal(t, put.Header.Revision, got.Kvs[0].Created)
	var lease struct{ TTL string }
	require.NoError(t, c.Call(0, "lease/grant", map[string]any{"TTL": 1}, &lease))
	require.Equal(t, "1", lease.TTL, "the shortest TTL is longer")
}

// TestEtcdCluster_ElectsLeaderWhileLeaderIsPaused checks that another server becomes the leader of the cluster
// while the previous leader is paused.
func TestEtcdCluster_ElectsLeaderWhileLeaderIsPaused(t *testing.T) {
	c := dbserver.StartEtcd(t, dbserver.EtcdConfig{Members: 3})
	first := c.Leader()
	c.Pause(first)
	require.Eventually(t, func() bool { return c.Leader() != first }, 10*time.Second, 10*time.Millisecond)
	c.Resume(first)
}

// TestEtcdCluster_RejectsClientWithoutCertificate checks that servers with TLS reject clients that present no
// certificate.
func TestEtcdCluster_RejectsClientWithoutCertificate(t *testing.T) {
	a := testenv.NewAuthority(t)
	c := dbserver.StartEtcd(t, dbserver.EtcdConfig{TLS: a})
	var status struct{ Leader string }
	require.NoError(t, c.Call(0, "maintenance/status", struct{}{}, &status))
	require.NotEmpty(t, status.Leader)
	withoutCert := &http.Client{
		Timeout: 10 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: a.Pool},
		},
	}
	response, err := withoutCert.Get(c.URL(0) + "/health")
	if err == nil {
		response.Body.Close()
	}
	require.Error(t, err, "a client without a certificate was accepted")
}
