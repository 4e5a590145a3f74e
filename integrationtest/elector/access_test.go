//go:build linux

package elector

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

// accessPage is the page whose blocks of commands TestDocuments_AccessCommandsProtectElection runs.
const accessPage = "docs/access.md"

// accessBlocks returns the sh blocks of a section of docs/access.md: protect contains the blocks that set
// permissions, and instance is the last block, which starts elector. In that block, exec replaces the shell by
// elector, so that elector receives signals.
func accessBlocks(t *testing.T, section string) (protect []string, instance string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("../..", accessPage))
	require.NoError(t, err)
	_, text, found := strings.Cut(string(page), "\n## "+section+"\n")
	require.True(t, found, section)
	text, _, _ = strings.Cut(text, "\n## ")
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		protect = append(protect, m[1])
	}
	require.GreaterOrEqual(t, len(protect), 2)
	instance = protect[len(protect)-1]
	return protect[:len(protect)-1], strings.Replace(instance, "elector run", "exec elector run", 1)
}

// TestDocuments_AccessCommandsProtectElection checks that the commands of docs/access.md protect an election: an
// instance of elector with the credentials must lead, and a client without credentials must not be able to end the
// election.
func TestDocuments_AccessCommandsProtectElection(t *testing.T) {
	bin := newBinDirectory(t)
	// The servers of the tests have no certificates; their addresses are local.
	withoutTLS := []string{"--tls --ca-file ca.pem ", "", "--tls --cacert ca.pem ", "", " --ca-file ca.pem", "", " ETCDCTL_CACERT=ca.pem", ""}
	protected := func(t *testing.T, section, denied string, replace ...string) *shell {
		s := &shell{T: t, bin: bin, replace: strings.NewReplacer(append(replace, withoutTLS...)...)}
		protect, instance := accessBlocks(t, section)
		for _, block := range protect {
			s.start("set -e\n" + block).requireSuccess()
		}
		leader := s.start(instance)
		leader.requireSuccess()
		require.Contains(t, leader.output(), "\nreport --serve\n")
		without := s.start("! timeout 60 elector end " + denied)
		without.requireSuccess()
		s.Log(without.output())
		return s
	}

	t.Run("zookeeper", func(t *testing.T) {
		t.Setenv("PATH", os.Getenv("PATH")+":/usr/share/zookeeper/bin")
		stranger := zkproxy.ConnectDirectly(t, 10*time.Second, servers.Addrs()...)
		election := testenv.NewPath(t)
		_, err := stranger.Create(election, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		all := strings.Join(servers.Addrs(), ",")
		replace := []string{"zk1,zk2,zk3", all, "zk1", servers.Addrs()[0], "/jobs/report", election}
		_, instance := accessBlocks(t, "ZooKeeper")
		open := (&shell{T: t, bin: bin, replace: strings.NewReplacer(append(replace, withoutTLS...)...)}).start("(" + instance + "); test $? = 4")
		open.requireSuccess()
		require.Contains(t, open.output(), "setAcl "+election+" auth::rwcda,world:anyone:r")
		s := protected(t, "ZooKeeper", "--zookeeper-servers "+all+" --election "+election, replace...)
		// Exit code 5 means that there is no leader.
		s.start("elector status --zookeeper-servers zk1 --election /jobs/report; test $? = 5").requireSuccess()
	})
	t.Run("etcd", func(t *testing.T) {
		url := dbserver.StartEtcd(t, dbserver.EtcdConfig{}).URL(0)
		protected(t, "etcd", "--backend etcd --election /jobs/report --etcd-endpoints "+url, "https://etcd1:2379", url)
	})
	t.Run("postgres", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755)) // another user runs the server, and must be able to read the directory
		hba := filepath.Join(dir, "pg_hba.conf")
		require.NoError(t, os.WriteFile(hba, []byte("host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"), 0o644))
		srv := dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.Postgres("fsync=on", "hba_file="+hba) })
		protected(t, "PostgreSQL", "--backend changefeed --election report --store postgres://report@"+srv.Addr()+"/postgres?sslmode=disable",
			"-h pg1", "-h 127.0.0.1 -p "+srv.Port(), " app ", " postgres ", "pg1/app?sslmode=verify-full", srv.Addr()+"/postgres?sslmode=disable")
	})
	t.Run("redis", func(t *testing.T) {
		srv := dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.Redis() })
		protected(t, "Redis", "--backend changefeed --election report --store redis://"+srv.Addr(),
			"-h redis1", "-h 127.0.0.1 -p "+srv.Port(), "rediss://report@redis1", "redis://report@"+srv.Addr())
	})
	t.Run("nats", func(t *testing.T) {
		config := filepath.Join(t.TempDir(), "nats.conf")
		replace := strings.NewReplacer("nats.conf", config)
		protect, _ := accessBlocks(t, "NATS")
		(&shell{T: t, bin: bin, replace: replace}).start(protect[0]).requireSuccess()
		srv := dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.NATS("-c", config) })
		protected(t, "NATS", "--backend changefeed --election report --store nats://"+srv.Addr(), "tls://report@nats1", "nats://report@"+srv.Addr())
	})
	t.Run("raftlog", func(t *testing.T) {
		dir := t.TempDir()
		replace := []string{"> secret", "> " + dir + "/secret", "-file secret", "-file " + dir + "/secret", "/var/lib/report", dir + "/$id", "--peer-id a", "--peer-id $id"}
		for i := range 3 {
			port, err := testenv.ReservePort()
			require.NoError(t, err)
			t.Cleanup(port.Release)
			replace = append(replace, fmt.Sprintf("host%d:7000", i+1), fmt.Sprintf("127.0.0.1:%d", port.Number))
		}
		s := &shell{T: t, bin: bin, replace: strings.NewReplacer(replace...)}
		protect, instance := accessBlocks(t, "Raft log")
		s.start("set -e\n" + protect[0]).requireSuccess()
		var all []*runningLine
		for _, id := range []string{"a", "b", "c"} {
			all = append(all, s.start("id="+id+"\n"+instance))
		}
		testenv.Eventually(t, func() bool {
			return strings.Contains(all[0].output()+all[1].output()+all[2].output(), "\nreport --serve\n")
		}, "no instance leads")
	})
}
