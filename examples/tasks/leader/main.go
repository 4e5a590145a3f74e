// Command leader serves HTTP on every replica, and works on the leader only.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electionprom"
	"github.com/go-leaderelection/leaderelection/elector"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

func main() {
	servers := flag.String("zk", "127.0.0.1:2181", "ZooKeeper servers, host:port,...")
	listen := flag.String("listen", ":8080", "address of /healthz, /leader and /metrics")
	name := flag.String("name", "", "name of this replica, which others see")
	addr := flag.String("addr", "", "address of this replica, which others see")
	flag.Parse()
	// systemd and Kubernetes send TERM: Lead then resigns, and the next replica leads immediately.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	conn, _, err := zkdial.Connect(strings.Split(*servers, ","), 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	candidate, err := leaderelection.NewElection(conn, "/jobs/report",
		leaderelection.WithName(*name), leaderelection.WithValue(*addr),
		leaderelection.WithCreateNode(), leaderelection.WithRejoin())
	if err != nil {
		log.Fatal(err)
	}

	var current atomic.Pointer[leaderelection.Leadership] // of this replica; nil if it does not lead
	http.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("/leader", func(w http.ResponseWriter, _ *http.Request) {
		if l := current.Load(); l != nil && l.Err() == nil {
			fmt.Fprintln(w, "leader with token", l.Token())
			return
		}
		http.Error(w, "not the leader", http.StatusServiceUnavailable)
	})
	exportMetrics(candidate)
	go func() { log.Fatal(http.ListenAndServe(*listen, nil)) }()

	err = elector.Lead(ctx, candidate, func(ctx context.Context, l *leaderelection.Leadership) error {
		current.Store(l)
		log.Print(*name, " leads with token ", l.Token())
		<-ctx.Done() // the work of the leader, which stops when ctx is done
		log.Print(*name, " stops: ", context.Cause(ctx))
		return nil
	})
	if err != nil {
		log.Fatal("ended: ", err) // the supervisor starts it again
	}
}

// exportMetrics serves the metrics of the election at /metrics, for Prometheus.
func exportMetrics(candidate *leaderelection.Election) {
	metrics := electionprom.NewCollector(nil) // one for all elections of the process
	prometheus.MustRegister(metrics)
	go metrics.Observe("/jobs/report", candidate.Events())
	http.Handle("/metrics", promhttp.Handler())
}
