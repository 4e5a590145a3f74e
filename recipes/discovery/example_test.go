package discovery_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"time"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/discovery"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func Example() {
	srv, err := zktest.NewServer() // a test server; your program connects to its own ensemble instead
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	conn, _, err := srv.Connect(10 * time.Second)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	services, err := discovery.New(conn, "/services")
	if err != nil {
		log.Fatal(err)
	}

	// A server registers itself as an instance of the service shop.
	uri, err := discovery.ParseURISpec("{scheme}://{address}:{port}")
	if err != nil {
		log.Fatal(err)
	}
	registration, err := services.Register(ctx, discovery.Instance{
		Name: "shop", Address: "10.0.0.7", Port: 8080, URI: uri,
		Payload: json.RawMessage(`{"@class":"java.util.HashMap","zone":"north"}`),
	})
	if err != nil {
		log.Fatal(err)
	}

	// A client of the service chooses one of its instances.
	shop, err := services.Provider(ctx, "shop", discovery.WithStrategy(discovery.RoundRobin()))
	if err != nil {
		log.Fatal(err)
	}
	instance, err := shop.Choose()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(instance.BuildURI(nil))
	shop.Report(instance) // call Report if a request to the instance fails

	if err := shop.Close(); err != nil {
		log.Fatal(err)
	}
	if err := registration.Close(); err != nil {
		log.Fatal(err)
	}
	// Output: http://10.0.0.7:8080
}

// In this example, the payload of each instance is a Go value as JSON.
func ExampleOf() {
	srv, err := zktest.NewServer() // a test server; your program connects to its own ensemble instead
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	conn, _, err := srv.Connect(10 * time.Second)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	type location struct {
		Zone string `json:"zone"`
	}
	services, err := discovery.New(conn, "/services")
	if err != nil {
		log.Fatal(err)
	}
	located := discovery.Of(services, recipes.JSONCodec[location]())
	registration, err := located.Register(ctx, discovery.Instance{Name: "shop", Address: "10.0.0.7", Port: 8080}, location{Zone: "north"})
	if err != nil {
		log.Fatal(err)
	}
	defer registration.Close()
	instances, err := services.Instances(ctx, "shop")
	if err != nil {
		log.Fatal(err)
	}
	for _, i := range instances {
		l, err := located.Value(i)
		fmt.Println(i.Address, "is in zone", l.Zone, err)
	}
	// Output: 10.0.0.7 is in zone north <nil>
}
