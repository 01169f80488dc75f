/* What a model of this directory gives to step.c. */
#ifndef PEER_H
#define PEER_H

#include "core/aifes_core.h"

/* Connects the layers, and the loss after them. */
void connect_layers(aimodel_t *model);

/* The tensor of a parameter; `argument` is its number in the model's file. */
aitensor_t *parameter(uint32_t argument);

#endif
