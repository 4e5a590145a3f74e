// Command metrics is a replica that exports the metrics of its election to Prometheus.
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
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
	listen := flag.String("listen", ":8080", "address of /metrics")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	conn, _, err := zkdial.Connect(strings.Split(*servers, ","), 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	metrics := electionprom.NewCollector(nil) // one for all elections of the process
	prometheus.MustRegister(metrics)
	http.Handle("/metrics", promhttp.Handler())
	go func() { log.Fatal(http.ListenAndServe(*listen, nil)) }()

	candidate, err := leaderelection.NewElection(conn, "/jobs/report",
		leaderelection.WithCreateNode(), leaderelection.WithRejoin())
	if err != nil {
		log.Fatal(err)
	}
	go metrics.Observe("/jobs/report", candidate.Events())
	err = elector.Lead(ctx, candidate, func(ctx context.Context, l *leaderelection.Leadership) error {
		log.Print("leader with token ", l.Token())
		<-ctx.Done()
		return nil
	})
	if err != nil {
		log.Fatal("ended: ", err)
	}
}
