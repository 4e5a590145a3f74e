package electionprom_test

import (
	"context"
	"log"
	"net/http"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electionprom"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/queue"
)

// A candidate exports the metrics of its election at /metrics.
func Example() {
	conn, _, err := zk.Connect([]string{"127.0.0.1:2181"}, 4*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	collector := electionprom.NewCollector(prometheus.Labels{"service": "billing"})
	prometheus.MustRegister(collector)
	http.Handle("/metrics", promhttp.Handler())
	go func() { log.Print(http.ListenAndServe(":9100", nil)) }()

	candidate, err := leaderelection.NewElection(conn, "/election")
	if err != nil {
		log.Fatal(err)
	}
	go collector.Observe("/election", candidate.Events())
	go candidate.ElectLeader()
	defer candidate.Resign()
	for status := range candidate.Status() {
		log.Printf("status: %v", status)
	}
}

// A worker exports the depth of its queue, the age of the jobs, and how they end.
func ExampleRecipeCollector() {
	conn, _, err := zk.Connect([]string{"127.0.0.1:2181"}, 4*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	collector := electionprom.NewRecipeCollector(prometheus.Labels{"service": "billing"})
	prometheus.MustRegister(collector)
	http.Handle("/metrics", promhttp.Handler())
	go func() { log.Print(http.ListenAndServe(":9100", nil)) }()

	jobs, err := queue.New(conn, "/jobs", recipes.WithEvents(collector.Record))
	if err != nil {
		log.Fatal(err)
	}
	defer jobs.Close()
	err = jobs.Handle(context.Background(), func(ctx context.Context, job *queue.Item) error {
		log.Printf("doing %s", job.Data())
		return nil
	})
	log.Print(err)
}
