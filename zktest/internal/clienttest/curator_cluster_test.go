package clienttest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// Curator connects to the servers that /zookeeper/config lists, and no longer to those that
// it was given. It must find the other servers there when it loses its own.
func TestCuratorOnACluster(t *testing.T) {
	cp, needs := classpath("curator-recipes", "curator-framework", "curator-client", "zookeeper", "guava")
	ens := zktest.Cluster(t, 3)
	addrs := ens.Addrs()
	slices.Reverse(addrs) // so that the list of the configuration is another string
	p := start(t, false, needs, "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", cp,
		"testdata/tracker.java", strings.Join(addrs, ","))
	p.expect("tracks true")
	session := p.number("session ")
	for stopped := false; !stopped; time.Sleep(time.Millisecond) { // Curator may change its server when it reads the list
		for _, s := range ens.Server(0).Sessions() {
			if s.ID == session && s.Server >= 0 {
				ens.Server(s.Server).Stop()
				stopped = true
			}
		}
	}
	p.tell("stopped")
	p.expect("done")
}
