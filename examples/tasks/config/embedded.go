package main

import (
	"flag"
	"fmt"
	"log"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

func init() {
	flag.BoolFunc("embedded", "use an embedded server, on which an operator changes the limit every second", func(string) error {
		server, err := zktest.NewServer()
		if err != nil {
			return err
		}
		operator, _, err := server.Connect(10 * time.Second)
		if err != nil {
			return err
		}
		if _, err := operator.Create("/config", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			return err
		}
		if _, err := operator.Create("/config/limit", []byte("10"), 0, zk.WorldACL(zk.PermAll)); err != nil {
			return err
		}
		go func() {
			for limit := 20; ; limit += 10 {
				time.Sleep(time.Second)
				if _, err := operator.Set("/config/limit", fmt.Append(nil, limit), -1); err != nil {
					log.Print(err)
					return
				}
			}
		}()
		return flag.Set("zk", server.Addr())
	})
}
