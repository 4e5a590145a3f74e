package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/transport"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

// serverLimit is how long one server may take to answer a question about its state, and how long the servers may take
// to answer one check.
const serverLimit = 5 * time.Second

// examineServers checks the servers and the election, and returns the findings. It returns at the latest when ctx is
// done.
func (z *zooKeeperBackend) examineServers(ctx context.Context) []finding {
	servers, config, err := z.settings.zooKeeperServers()
	if err != nil {
		return []finding{newFinding(severityError, "servers", "%v", err)}
	}
	answers := make([]serverAnswer, len(servers))
	for i, address := range servers {
		answers[i] = askServer(ctx, address, config)
	}
	findings := assessServers(answers)
	limited, cancel := context.WithTimeout(ctx, serverLimit+z.settings.sessionTimeout/2)
	defer cancel()
	if err := z.awaitSession(limited); err != nil {
		return append(findings, newFinding(severityError, "session", "%v", adviseZooKeeper(z.settings, err)))
	}
	findings = append(findings, assessTimeout(z.settings.sessionTimeout, zkdial.Granted(z.conn)))
	node, exists := z.examineNode(ctx)
	findings = append(append(findings, node), z.examineQuotas(ctx)...)
	return append(findings, z.examineWrites(ctx, exists)...)
}

// serverAnswer is the answer of a server to the four-letter word srvr.
type serverAnswer struct {
	address, version, mode string
	refused                bool // whether the server does not permit the four-letter word
	err                    error
}

// askServer asks a server for its state with the four-letter word srvr.
func askServer(ctx context.Context, address string, config *tls.Config) serverAnswer {
	a := serverAnswer{address: address}
	ctx, cancel := context.WithTimeout(ctx, serverLimit)
	defer cancel()
	dial := (&net.Dialer{}).DialContext
	if config != nil {
		dial = (&tls.Dialer{Config: transport.ForServer(config, transport.Host(address))}).DialContext
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		a.err = err
		return a
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	if _, a.err = io.WriteString(conn, "srvr"); a.err != nil {
		return a
	}
	text, err := io.ReadAll(io.LimitReader(conn, 1<<16))
	if err != nil && len(text) == 0 {
		a.err = err
		return a
	}
	a.parse(string(text))
	return a
}

var serverVersion = regexp.MustCompile(`(?i)^zookeeper version: ([\w.]+)`)

// parse sets the fields of a from the text of an answer.
func (a *serverAnswer) parse(text string) {
	if version := serverVersion.FindStringSubmatch(text); version != nil {
		a.version = version[1]
	}
	if _, after, found := strings.Cut(text, "\nMode: "); found {
		a.mode, _, _ = strings.Cut(after, "\n")
	}
	switch {
	case strings.Contains(text, "whitelist"):
		a.refused = true
	case strings.Contains(text, "not currently serving requests"):
		a.err = errors.New("the server serves no requests, because it has no quorum")
	case a.version == "":
		a.err = errors.New("this is not a ZooKeeper server, or it requires other settings for TLS")
	}
}

// assessServers returns a finding for each server, and one for all servers together.
func assessServers(answers []serverAnswer) (findings []finding) {
	versions, failed, modes := map[string]bool{}, 0, 0
	for _, a := range answers {
		about := "server"
		switch {
		case a.err != nil:
			failed++
			findings = append(findings, newFinding(severityWarning, about, "%s does not serve clients: %v", a.address, a.err))
			continue
		case a.refused:
			findings = append(findings, newFinding(severityUnknown, about, "%s: version unknown; add srvr to 4lw.commands.whitelist in its settings", a.address))
			continue
		}
		versions[a.version] = true
		if a.mode == "leader" || a.mode == "standalone" {
			modes++
		}
		s, remark := severityOK, ""
		switch {
		case isOlder(a.version, 3, 4):
			s, remark = severityError, ": it has no transactions; use ZooKeeper 3.5 or later"
		case isOlder(a.version, 3, 5):
			s, remark = severityWarning, ": this release is not tested with; empty nodes of recipes remain; use 3.8 or 3.9"
		case a.mode == "read-only":
			s, remark = severityWarning, ": it has lost its quorum"
		}
		findings = append(findings, newFinding(s, about, "%s: version %s, %s%s", a.address, a.version, a.mode, remark))
	}
	switch {
	case failed == len(answers):
		findings = append(findings, newFinding(severityError, "servers", "none of the servers answers: check --zookeeper-servers and the network"))
	case modes > 1:
		findings = append(findings, newFinding(severityError, "servers", "%d of the servers are leaders: they belong to different ensembles, so that two candidates can lead; list the servers of one ensemble", modes))
	}
	if len(versions) > 1 {
		findings = append(findings, newFinding(severityWarning, "servers", "they have different versions: %s", strings.Join(slices.Sorted(maps.Keys(versions)), ", ")))
	}
	return findings
}

// isOlder reports whether a version is older than major.minor. It returns false for an unknown version.
func isOlder(version string, major, minor int) bool {
	numbers := strings.SplitN(version, ".", 3)
	if len(numbers) < 2 {
		return false
	}
	a, errA := strconv.Atoi(numbers[0])
	b, errB := strconv.Atoi(numbers[1])
	return errA == nil && errB == nil && (a < major || a == major && b < minor)
}

// assessTimeout returns the finding for the granted session timeout, compared with the requested one.
func assessTimeout(requested, granted time.Duration) finding {
	if granted == requested {
		return newFinding(severityOK, "session", "the servers grant the timeout of %v", granted)
	}
	setting := "maxSessionTimeout"
	if granted > requested {
		setting = "minSessionTimeout"
	}
	return newFinding(severityWarning, "session", "the servers grant a timeout of %v instead of %v: a crashed leader is replaced after that time; change %s of the servers, or --session-timeout", granted, requested, setting)
}

// readWithLimit calls f, which sends a request, and waits for the reply for at most serverLimit.
func readWithLimit[T any](ctx context.Context, z *zooKeeperBackend, f func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, serverLimit)
	defer cancel()
	return zkdial.Retry(ctx, z.conn, f)
}

// examineNode returns the finding for the election node, and reports whether the node exists, as far as this client
// can know.
func (z *zooKeeperBackend) examineNode(ctx context.Context) (f finding, exists bool) {
	acl, err := readWithLimit(ctx, z, func() ([]zk.ACL, error) {
		acl, _, err := z.conn.GetACL(z.settings.election)
		return acl, err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return newFinding(severityOK, "election", "%s does not exist: the first candidate creates it", z.settings.election), false
	case errors.Is(err, zk.ErrNoAuth): // a candidate needs the permission to read, because it lists the other candidates
		return newFinding(severityError, "ACL", "no permission to read %s: set or correct ELECTOR_ZOOKEEPER_AUTH (--zookeeper-auth), or correct the ACL", z.settings.election), true
	case err != nil:
		return newFinding(severityUnknown, "ACL", "that of %s cannot be read: %v", z.settings.election, err), true
	}
	user, _, _ := strings.Cut(z.settings.zookeeper.auth, ":")
	return assessACL(z.settings.election, acl, user), true
}

// assessACL returns the finding about who can change an election with this ACL. user is the user name in the
// credentials, or "" without credentials.
func assessACL(election string, acl []zk.ACL, user string) finding {
	const change = zk.PermCreate | zk.PermDelete | zk.PermAdmin
	var others, own int32
	for _, entry := range acl {
		switch {
		case entry.Scheme == "world":
			others |= entry.Perms
		case entry.Scheme != "digest", user != "" && strings.HasPrefix(entry.ID, user+":"):
			own |= entry.Perms // the servers may authenticate this client by other means, such as its address
		}
	}
	switch {
	case (others|own)&zk.PermCreate == 0 && user == "":
		return newFinding(severityError, "ACL", "%s does not let clients without credentials create candidates: set ELECTOR_ZOOKEEPER_AUTH (--zookeeper-auth)", election)
	case (others|own)&zk.PermCreate == 0:
		return newFinding(severityError, "ACL", "%s does not let user %s create candidates: correct ELECTOR_ZOOKEEPER_AUTH (--zookeeper-auth), or the ACL", election, user)
	case others&zk.PermDelete != 0:
		return newFinding(severityWarning, "ACL", "every client can delete the candidates of %s, and then two can lead for a moment: see docs/access.md", election)
	case others&change != 0:
		return newFinding(severityWarning, "ACL", "every client can create candidates of %s, or change its ACL: see docs/access.md", election)
	}
	return newFinding(severityOK, "ACL", "only clients with credentials can change %s", election)
}

// examineQuotas returns the findings for the quotas of the election node and of the znodes above it.
func (z *zooKeeperBackend) examineQuotas(ctx context.Context) (findings []finding) {
	for node := z.settings.election; node != "/"; node = path.Dir(node) {
		read := func(name string) (string, error) {
			return readWithLimit(ctx, z, func() (string, error) {
				data, _, err := z.conn.Get("/zookeeper/quota" + node + "/" + name)
				return string(data), err
			})
		}
		limits, err := read("zookeeper_limits")
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		usage, usageErr := read("zookeeper_stats")
		if err = errors.Join(err, usageErr); err != nil {
			findings = append(findings, newFinding(severityUnknown, "quota", "the quota of %s cannot be read: %v", node, err))
			continue
		}
		findings = append(findings, assessQuota(node, limits, usage))
	}
	return findings
}

// assessQuota returns the finding for a quota, whose limits it compares with the usage. Both have the form that
// ZooKeeper stores, such as count=5,bytes=-1 or count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=5.
func assessQuota(node, limits, usage string) finding {
	limit, used := quotaNumbers(limits), quotaNumbers(usage)
	for _, kind := range []struct{ used, name string }{{"count", "znodes"}, {"bytes", "bytes"}} {
		hard := strings.TrimSuffix(kind.used, "s") + "HardLimit"
		for _, name := range []string{hard, kind.used} {
			maximum, set := limit[name]
			if !set || maximum < 0 || used[kind.used] < maximum-maximum/10 {
				continue
			}
			return newFinding(severityWarning, "quota", "%s has %d of %d %s: if the servers enforce quotas, candidates cannot join when it is exceeded", node, used[kind.used], maximum, kind.name)
		}
	}
	return newFinding(severityOK, "quota", "%s has %d znodes and %d bytes, less than 90 %% of its quota", node, used["count"], used["bytes"])
}

var quotaNumber = regexp.MustCompile(`(\w+)=(-?\d+)`)

// quotaNumbers returns the numbers in the data of a quota znode, such as count=5,bytes=-1, by their names.
func quotaNumbers(text string) map[string]int64 {
	numbers := map[string]int64{}
	for _, pair := range quotaNumber.FindAllStringSubmatch(text, -1) {
		numbers[pair[1]], _ = strconv.ParseInt(pair[2], 10, 64)
	}
	return numbers
}

// examineWrites checks that this client may create and delete znodes, by creating and deleting a znode next to the
// election node. electionExists reports whether the election node exists.
func (z *zooKeeperBackend) examineWrites(ctx context.Context, electionExists bool) []finding {
	parent := path.Dir(z.settings.election)
	for parent != "/" {
		exists, err := readWithLimit(ctx, z, func() (bool, error) {
			exists, _, err := z.conn.Exists(parent)
			return exists, err
		})
		if err != nil {
			return []finding{newFinding(severityError, "write", "%s cannot be read: %v", parent, err)}
		}
		if exists {
			break
		}
		parent = path.Dir(parent)
	}
	node := path.Join(parent, "elector-doctor-"+rand.Text())
	acl := zk.WorldACL(zk.PermAll)
	before := time.Now()
	stat, err := readWithLimit(ctx, z, func() (*zk.Stat, error) {
		_, err := z.conn.Create(node, nil, zk.FlagEphemeral, acl)
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return nil, err
		}
		_, stat, err := z.conn.Exists(node)
		return stat, err
	})
	after := time.Now()
	if err != nil {
		return []finding{assessWrite(parent, electionExists, err)}
	}
	findings := []finding{
		newFinding(severityOK, "write", "the servers have confirmed a znode below %s within %v", parent, after.Sub(before).Round(time.Millisecond)),
		assessClock(before, time.UnixMilli(stat.Ctime), after),
	}
	// Ignore the error, because the servers delete the znode when the session ends.
	_, _ = readWithLimit(ctx, z, func() (struct{}, error) { return struct{}{}, z.conn.Delete(node, -1) })
	return append(findings, z.examineContainers(ctx, parent))
}

// examineContainers creates a container znode below parent, and deletes it. It uses a new name, because doctor may
// not have been able to delete an earlier znode.
func (z *zooKeeperBackend) examineContainers(ctx context.Context, parent string) finding {
	node := path.Join(parent, "elector-doctor-"+rand.Text())
	// Do not retry the creation, because some servers close the connection at each attempt.
	refused, err := readWithLimit(ctx, z, func() (error, error) {
		_, err := z.conn.CreateContainer(node, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
		return err, nil
	})
	// Delete the container even after an error: the server may have created the container although the reply was
	// lost.
	_, deleted := readWithLimit(ctx, z, func() (struct{}, error) { return struct{}{}, z.conn.Delete(node, -1) })
	return assessContainer(node, errors.Join(err, refused), deleted)
}

// assessContainer returns the finding for a container, given the results of its creation and of its deletion.
func assessContainer(node string, created, deleted error) finding {
	is := func(target error) bool { return errors.Is(created, target) }
	switch {
	case deleted != nil && !errors.Is(deleted, zk.ErrNoNode):
		return newFinding(severityWarning, "containers", "%s cannot be deleted: delete it if it exists: %v", node, deleted)
	case created == nil:
		return newFinding(severityOK, "containers", "the servers support containers")
	case slices.ContainsFunc([]error{
		zk.ErrNodeExists, zk.ErrConnectionClosed, zk.ErrSessionExpired, zk.ErrSessionMoved, zk.ErrNoServer, zk.ErrClosing,
		context.DeadlineExceeded, context.Canceled,
	}, is):
		return newFinding(severityUnknown, "containers", "the servers may not support containers: they have not answered, or close the connection (%v); repeat the check", created)
	}
	return newFinding(severityWarning, "containers", "the servers do not support containers (%v): empty nodes of locks, queues and groups remain; elections are not affected", created)
}

// assessWrite returns the finding for the error with which the creation of a znode below parent has failed.
func assessWrite(parent string, electionExists bool, err error) finding {
	switch {
	case errors.Is(err, zk.ErrNoAuth) && electionExists:
		return newFinding(severityUnknown, "write", "no permission to create znodes below %s: the clocks and containers were not checked; the election exists, so its candidates do not need it", parent)
	case errors.Is(err, zk.ErrNoAuth):
		return newFinding(severityError, "write", "no permission to create the election below %s: set ELECTOR_ZOOKEEPER_AUTH (--zookeeper-auth), or create it with an ACL that permits the candidates: see docs/access.md", parent)
	case errors.Is(err, context.DeadlineExceeded):
		return newFinding(severityError, "write", "the servers do not confirm a write within %v: they have no quorum, or their disks are slow", serverLimit)
	}
	return newFinding(severityError, "write", "a znode below %s cannot be created: %v", parent, err)
}

// maxClockDifference is the least difference of the clocks of which doctor warns.
const maxClockDifference = time.Second

// assessClock returns the finding for the clock of the servers. This machine has sent a request at the time before,
// and received the answer at the time after.
func assessClock(before, server, after time.Time) finding {
	difference := time.Duration(0)
	switch {
	case server.Before(before.Truncate(time.Millisecond)):
		difference = server.Sub(before)
	case server.After(after):
		difference = server.Sub(after)
	}
	if difference.Abs() <= maxClockDifference {
		return newFinding(severityOK, "clock", "the clocks of the servers and of this machine differ by at most %v", maxClockDifference)
	}
	return newFinding(severityWarning, "clock", "the clock of the servers differs by %v: elections do not depend on it, but the times that elector shows and the periods of jobs do; synchronize the clocks", difference.Round(time.Millisecond))
}
