// Command discovery registers an instance of the service "shop", or finds one.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-leaderelection/leaderelection/recipes/discovery"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

func main() {
	servers := flag.String("zk", "127.0.0.1:2181", "ZooKeeper servers, host:port,...")
	serve := flag.String("serve", "", "host:port of the instance to register; otherwise find one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	conn, _, err := zkdial.Connect(strings.Split(*servers, ","), 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	services, err := discovery.New(conn, "/services")
	if err != nil {
		log.Fatal(err)
	}
	if *serve != "" {
		err = register(ctx, services, *serve)
	} else {
		err = find(ctx, services)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// register keeps the instance registered until ctx is done, also after its session has expired.
func register(ctx context.Context, services *discovery.Discovery, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	instance := discovery.Instance{Name: "shop", Address: host, Port: number}
	registration, err := services.Register(ctx, instance)
	if err != nil {
		return err
	}
	fmt.Println("registered", addr)
	<-ctx.Done() // here the program serves its clients
	return registration.Close()
}

// find prints an instance. A client keeps its provider, and calls Choose for each connection.
func find(ctx context.Context, services *discovery.Discovery) error {
	shop, err := services.Provider(ctx, "shop", discovery.WithStrategy(discovery.RoundRobin()))
	if err != nil {
		return err
	}
	defer shop.Close()
	instance, err := shop.Choose() // from memory
	if err != nil {
		return err
	}
	fmt.Println("found", net.JoinHostPort(instance.Address, strconv.Itoa(instance.Port)))
	return nil
}
