package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type told struct {
	CA, Mechanism, User, Password, Token, Certificate, Key string
}

// security says how to prove who one is, from the environment.
func security() ([]kgo.Opt, error) {
	text := os.Getenv("QBUS_COMPAT_SECURITY")
	if text == "" {
		return nil, nil
	}
	var asked told
	if err := json.Unmarshal([]byte(text), &asked); err != nil {
		return nil, err
	}
	authorities, err := os.ReadFile(asked.CA)
	if err != nil {
		return nil, err
	}
	settings := &tls.Config{RootCAs: x509.NewCertPool()}
	settings.RootCAs.AppendCertsFromPEM(authorities)
	if asked.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(asked.Certificate, asked.Key)
		if err != nil {
			return nil, err
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	options := []kgo.Opt{kgo.DialTLSConfig(settings)}
	if asked.Mechanism == "" {
		return options, nil
	}
	mechanisms := map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: asked.User, Pass: asked.Password}.AsMechanism(),
		"SCRAM-SHA-256": scram.Auth{User: asked.User, Pass: asked.Password}.AsSha256Mechanism(),
		"SCRAM-SHA-512": scram.Auth{User: asked.User, Pass: asked.Password}.AsSha512Mechanism(),
		"OAUTHBEARER":   oauth.Auth{Token: asked.Token}.AsMechanism(),
	}
	mechanism, known := mechanisms[asked.Mechanism]
	if !known {
		return nil, fmt.Errorf("no mechanism %s", asked.Mechanism)
	}
	return append(options, kgo.SASL(mechanism)), nil
}
