//go:build unix

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestDoctor_ReportsFindingsAndLeavesNoZnode checks the findings that doctor reports about a healthy server, and
// about one with quotas and restrictive ACLs, and that doctor leaves no znode behind.
func TestDoctor_ReportsFindingsAndLeavesNoZnode(t *testing.T) {
	h := newZooKeeperHarness(t)
	args := func(more ...string) []string { return append(append([]string{"doctor"}, h.flags...), more...) }
	tree := h.srv.Tree()
	out, err := executeLine(args()...)
	require.NoError(t, err)
	for _, want := range []string{
		"ok       server          " + h.addr + ": version 3.8.0, standalone\n",
		"ok       session         the servers grant the timeout of 4s\n",
		"ok       election        /jobs/one does not exist",
		"ok       write           the servers have confirmed a znode below / within ",
		"ok       clock           ",
		"ok       containers      ",
	} {
		require.Contains(t, out, want)
	}
	require.Equal(t, tree, h.srv.Tree(), "doctor has left a znode behind")

	conn, _, err := h.srv.Connect(patience)
	require.NoError(t, err)
	for _, node := range []string{"/jobs", "/zookeeper/quota/jobs"} {
		_, err = conn.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	for name, data := range map[string]string{"limits": "count=10,bytes=-1", "stats": "count=9,bytes=0"} {
		_, err = conn.Create("/zookeeper/quota/jobs/zookeeper_"+name, []byte(data), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	_, err = conn.Create("/jobs/one", nil, 0, zk.DigestACL(zk.PermAll, "user", "password"))
	require.NoError(t, err)
	_, err = conn.SetACL("/jobs", zk.DigestACL(zk.PermAll, "other", "password"), -1)
	require.NoError(t, err)
	out, err = executeLine(args("--session-timeout", "30m", "--zookeeper-auth", "user:password")...)
	require.NoError(t, err)
	require.Contains(t, out, "warning  session         the servers grant a timeout of 1m0s instead of 30m0s")
	require.Contains(t, out, "ok       ACL             only clients with credentials can change /jobs/one")
	require.Contains(t, out, "warning  quota           /jobs has 9 of 10 znodes")
	require.Contains(t, out, "unknown  write           no permission to create znodes below /jobs")
	out, err = executeLine(args("--zookeeper-auth", "stranger:password")...)
	require.Equal(t, cmdline.Failed, exitCode(err))
	require.Contains(t, out, "error    ACL             no permission to read /jobs/one")
	_, err = executeLine(args("--", "no-such-program")...)
	require.Equal(t, cmdline.NotFound, exitCode(err))
}

// TestDoctor_DeletesContainerAfterLostReply checks that doctor deletes a container whose creation the server has not
// confirmed, and still reports that the server supports containers if the deletion of another znode fails.
func TestDoctor_DeletesContainerAfterLostReply(t *testing.T) {
	h := newZooKeeperHarness(t)
	tree := h.srv.Tree()
	h.srv.After(zktest.Match{Op: zktest.OpCreateContainer, Nth: 1}, zktest.Cut)
	out, err := executeLine(append([]string{"doctor"}, h.flags...)...)
	require.NoError(t, err)
	require.Contains(t, out, "unknown  containers ")
	require.Equal(t, tree, h.srv.Tree(), "doctor has left a znode behind")

	h.srv.Before(zktest.Match{Op: zktest.OpDelete, Nth: 1}, zktest.Fail(zk.ErrNoAuth))
	out, err = executeLine(append([]string{"doctor"}, h.flags...)...)
	require.NoError(t, err)
	require.Contains(t, out, "ok       containers ")
	require.Equal(t, tree, h.srv.Tree(), "doctor has left a znode behind")
}

// TestDoctor_RejectsInvalidMigrationSettings checks that doctor rejects the same invalid settings of a migration
// (--also) as run.
func TestDoctor_RejectsInvalidMigrationSettings(t *testing.T) {
	for _, program := range [][]string{nil, {"--", "true"}} {
		_, err := executeLine(append([]string{"doctor", "--zookeeper-servers", "127.0.0.1:1", "--also", "zookeeper"}, program...)...)
		require.ErrorContains(t, err, "--also zookeeper: --backend already names this backend")
		require.Equal(t, cmdline.Usage, exitCode(err))
	}
}

// TestDoctor_ReportsServersThatDoNotAnswer checks that doctor reports each server that does not answer, and fails if
// none answers.
func TestDoctor_ReportsServersThatDoNotAnswer(t *testing.T) {
	h := newZooKeeperHarness(t)
	h.srv.Stop()
	out, err := executeLine(append([]string{"doctor"}, h.flags...)...)
	require.Equal(t, cmdline.Failed, exitCode(err))
	require.Contains(t, out, "warning  server          "+h.addr+" does not serve clients: ")
	require.Contains(t, out, "error    servers         none of the servers answers")
	require.Contains(t, out, "error    session         ")
}

// TestDoctor_AssignsSeverityToFindings checks the severity that doctor assigns to each kind of finding.
func TestDoctor_AssignsSeverityToFindings(t *testing.T) {
	now := time.UnixMilli(1700000000000)
	answer := func(text string) serverAnswer {
		a := serverAnswer{address: "zk1:2181"}
		a.parse(text)
		return a
	}
	srvr := func(version, mode string) string {
		return "Zookeeper version: " + version + "-abc, built on 2022-02-25 08:49 UTC\nLatency min/avg/max: 0/0.0/0\nMode: " + mode + "\nNode count: 5\n"
	}
	digest := func(perms int32, user string) []zk.ACL {
		return []zk.ACL{{Perms: perms, Scheme: "digest", ID: user + ":x"}}
	}
	for name, test := range map[string]struct {
		findings []finding
		want     severity // the severity of the last finding
		text     string
	}{
		"server":                      {assessServers([]serverAnswer{answer(srvr("3.9.4", "follower"))}), severityOK, "zk1:2181: version 3.9.4, follower"},
		"old server":                  {assessServers([]serverAnswer{answer(srvr("3.4.13", "leader"))}), severityWarning, "not tested"},
		"very old server":             {assessServers([]serverAnswer{answer(srvr("3.3.6", "leader"))}), severityError, "no transactions"},
		"read-only server":            {assessServers([]serverAnswer{answer(srvr("3.8.0", "read-only"))}), severityWarning, "lost its quorum"},
		"word not permitted":          {assessServers([]serverAnswer{answer("srvr is not executed because it is not in the whitelist.\n")}), severityUnknown, "4lw.commands.whitelist"},
		"no quorum":                   {assessServers([]serverAnswer{answer(srvr("3.8.0", "leader")), answer("This ZooKeeper instance is not currently serving requests\n")}), severityWarning, "no quorum"},
		"no ZooKeeper":                {assessServers([]serverAnswer{answer("HTTP/1.1 400 Bad Request\n")}), severityError, "none of the servers answers"},
		"different versions":          {assessServers([]serverAnswer{answer(srvr("3.8.0", "leader")), answer(srvr("3.9.4", "follower"))}), severityWarning, "3.8.0, 3.9.4"},
		"two ensembles":               {assessServers([]serverAnswer{answer(srvr("3.8.0", "standalone")), answer(srvr("3.8.0", "standalone"))}), severityError, "different ensembles"},
		"timeout":                     {[]finding{assessTimeout(4*time.Second, 4*time.Second)}, severityOK, ""},
		"short timeout":               {[]finding{assessTimeout(time.Minute, 40*time.Second)}, severityWarning, "maxSessionTimeout"},
		"long timeout":                {[]finding{assessTimeout(time.Second, 4*time.Second)}, severityWarning, "minSessionTimeout"},
		"open ACL":                    {[]finding{assessACL("/e", zk.WorldACL(zk.PermAll), "")}, severityWarning, "delete the candidates"},
		"ACL of others":               {[]finding{assessACL("/e", digest(zk.PermAll, "other"), "")}, severityError, "set ELECTOR_ZOOKEEPER_AUTH"},
		"ACL of another user":         {[]finding{assessACL("/e", digest(zk.PermAll, "other"), "user")}, severityError, "user user"},
		"ACL of the user":             {[]finding{assessACL("/e", append(digest(zk.PermAll, "user"), zk.WorldACL(zk.PermRead)...), "user")}, severityOK, ""},
		"ACL that lets others create": {[]finding{assessACL("/e", append(digest(zk.PermAll, "user"), zk.WorldACL(zk.PermCreate)...), "user")}, severityWarning, "create candidates"},
		"quota":                       {[]finding{assessQuota("/e", "count=100,bytes=-1", "count=5,bytes=7")}, severityOK, "5 znodes and 7 bytes"},
		"hard quota":                  {[]finding{assessQuota("/e", "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=5", "count=5,bytes=7")}, severityWarning, "5 of 5 znodes"},
		"quota of bytes":              {[]finding{assessQuota("/e", "count=-1,bytes=100", "count=5,bytes=95")}, severityWarning, "95 of 100 bytes"},
		"clock":                       {[]finding{assessClock(now, now.Add(time.Second), now)}, severityOK, ""},
		"clock behind":                {[]finding{assessClock(now, now.Add(-2*time.Second), now.Add(time.Second))}, severityWarning, "by -2s"},
		"clock ahead":                 {[]finding{assessClock(now, now.Add(4*time.Second), now.Add(time.Second))}, severityWarning, "by 3s"},
		"write":                       {[]finding{assessWrite("/jobs", false, zk.ErrNoAuth)}, severityError, "no permission"},
		"write of an election":        {[]finding{assessWrite("/jobs", true, zk.ErrNoAuth)}, severityUnknown, "no permission"},
		"slow write":                  {[]finding{assessWrite("/jobs", true, context.DeadlineExceeded)}, severityError, "no quorum"},
		"container":                   {[]finding{assessContainer("/c", nil, nil)}, severityOK, ""},
		"container that remains":      {[]finding{assessContainer("/c", zk.ErrConnectionClosed, zk.ErrNotEmpty)}, severityWarning, "/c cannot be deleted: delete it"},
		"container, lost reply":       {[]finding{assessContainer("/c", zk.ErrConnectionClosed, nil)}, severityUnknown, "repeat the check"},
		"container that existed":      {[]finding{assessContainer("/c", zk.ErrNodeExists, nil)}, severityUnknown, "repeat the check"},
		"no containers":               {[]finding{assessContainer("/c", zk.ErrUnknown, zk.ErrNoNode)}, severityWarning, "do not support containers"},
		"failed write":                {[]finding{assessWrite("/jobs", true, errors.New("quota exceeded"))}, severityError, "quota exceeded"},
	} {
		last := test.findings[len(test.findings)-1]
		require.Equal(t, test.want, last.severity, "%s: %s", name, last.text)
		require.Contains(t, last.text, test.text, name)
	}
	var out strings.Builder
	require.NoError(t, printFindings(&out, []finding{{severityWarning, "a", "b\x1b"}}))
	require.Equal(t, "warning  a               b\\x1b\n", out.String())
}
